"""What a page of results says of the models themselves: what their latents hold, and what training ended with."""

import pytest

from alewm.errors import InputError
from alewm_lab.publishing.published import read_results
from copied_results import change, edit, page_of, replace_table


def measure(results, run: str, content: dict) -> None:
    replace_table(results, run, "measurement", [{"measurement": "probes", **content}])


def factors(x: float, y: float) -> dict:
    return {"mean": (x + y) / 2, "factors": {"proprio[0]": x, "proprio[1]": y}}


def test_what_prefixes_say_of_the_state_is_the_mean_over_the_seeds_that_were_probed(published):
    command = "alewm-lab experiment probes --scale short"
    for seed, r2 in ((3072, 0.5), (3073, 0.7)):
        results = published(f"run-{seed}", config={"training.seed": seed})
        probed = {"linear": {"8": factors(r2, r2), "192": factors(0.8, 1.0)}, "network": {"8": factors(0.5, r2 - 0.6)}}
        measure(results, f"run-{seed}", {"measured": probed, "made_with": {"command": command}})
    published("not-probed", config={"training.seed": 3074})
    text = page_of(results)
    linear = "| linear | 0.600 ± 0.100 | 0.900 ± 0.000 | proprio[0]: 0.800 |"
    assert f"| ALeWM | 192 | 0.3 | 3 | 3 | 3072, 3073 {linear}" in text
    assert "| network | 0.250 ± 0.050 | – | proprio[1]: 0.000 |" in text
    assert text.count(f"{command}\n") == 1


def test_probes_of_more_and_of_less_are_compared_on_what_both_read(published):
    for seed, more in ((3072, {}), (3073, {"proprio[1]": 0.1, "qvel[0]": 0.9})):
        results = published(f"run-{seed}", config={"training.seed": seed})
        read = {"8": {"factors": {"proprio[0]": 0.7, **more}}}
        measure(results, f"run-{seed}", {"measured": {"linear": read, "network": read}, "made_with": {"command": "x"}})
    text = page_of(results)
    assert "| linear | 0.700 ± 0.000 | proprio[0]: 0.700 |" in text
    assert "qvel" not in text
    for seed, name in ((3072, "proprio[0]"), (3073, "proprio[1]")):
        read = {"8": {"factors": {name: 0.7}}}
        measure(results, f"run-{seed}", {"measured": {"linear": read, "network": read}})
    assert "| 3072, 3073 | linear | – | – |" in page_of(results), "nothing in common"


def test_what_training_ended_with_is_in_a_table(published):
    ended = {"training.validation/prediction": 0.01, "training.validation/q_entropy": 1.5}
    for seed, share in ((3072, 0.5), (3073, 0.7)):
        most = {
            "training.validation/q/8": 0.3,
            "training.validation/q/64": share,
            "training.latent/effective_rank": seed,
        }
        results = published(f"run-{seed}", config={"training.seed": seed}, **ended, **most)
        rows = [{"coordinate": 1, "masked_variance": 1.0, "prior_survival": 0.75}]
        rows += [{"coordinate": 2, "masked_variance": 0.5, "prior_survival": 0.5}]
        replace_table(results, f"run-{seed}", "latent", rows)
    ended = "– | 0.013 ± 0.000 | 1.50 ± 0.00 | 64: 0.50 to 0.70 | 3072.5 ± 0.5 | 0.125 ± 0.000 |"
    assert f"| ALeWM | 192 | 0.3 | 3 | 3 | 3072, 3073 | {ended}" in page_of(results)
    published("run-3073", **{"training.validation/q/8": 0.9})
    assert "| 64: 0.50; 8: 0.90 |" in page_of(results)
    for seed in (3072, 3073):
        replace_table(results, f"run-{seed}", "latent", [])
    assert "What training ended with" not in page_of(results)


@pytest.mark.parametrize(
    ("config", "q", "variances", "errors"),
    [
        ({}, (0.5, 0.5), (2.0, 3.0), "0.040 | 0.133"),
        ({}, (0.5, 0.5), (), "– | 0.133"),
        ({"objective.method": "lewm"}, (1.0,), (), "0.133 | 0.133"),
        ({"objective.prediction_target": "prefix"}, (0.5, 0.5), (2.0, 3.0), "– | –"),
    ],
    ids=["masks", "masks, older record", "never masks", "predicts a prefix"],
)
def test_an_error_is_shared_by_the_variance_of_what_is_predicted(published, config, q, variances, errors):
    """The whole latent is predicted whatever masks the input, and varies more than what the mask leaves of it."""
    results = published("run", config=config)
    ended = {"validation/prediction": 0.1, "validation/q_entropy": 1.5, "latent/effective_rank": 2.0}
    ended |= {"step": 4500, "seconds": 100.0, **{f"validation/q/{k}": share for k, share in enumerate(q, 1)}}
    change(results, "run", "run", {"training": ended})
    rows = [{"masked_variance": 1.0, "prior_survival": 1.0}, {"masked_variance": 0.5, "prior_survival": 0.5}]
    for row, variance in zip(rows, variances, strict=False):
        row["variance"] = variance
    replace_table(results, "run", "latent", rows)
    assert f"| 3073 | {errors} |" in page_of(results)


def test_a_measurement_without_its_result_is_refused(published):
    results = published("damaged")
    measure(results, "damaged", {"options": {}})
    with pytest.raises(InputError, match=r"damaged: its measurement probes holds nothing measured"):
        read_results(results)


WHOLE = {"linear": {"8": factors(0.1, 0.2)}, "network": {"8": factors(0.1, 0.2)}}


@pytest.mark.parametrize(
    "damage",
    [
        {"network": None},
        {"network": {}},
        {"network": {"8": {"mean": 0.1}}},
        {"network": {"8": {"factors": {}}}},
        {"network": {"8": {"factors": {"proprio[0]": "a lot"}}}},
        {"network": {"8": {"factors": {"qvel[0]": 0.5}}}},
        {"network": {"eight": factors(0.1, 0.2)}},
        {"network": [1]},
    ],
)
def test_damaged_probes_are_refused(published, damage):
    results = published("damaged")
    measure(results, "damaged", {"measured": {**WHOLE, **damage}})
    with pytest.raises(InputError, match=r"damaged: its measurement probes lacks R² of the network probe"):
        page_of(results)


def test_damaged_latents_are_refused(published):
    results = published("damaged")
    edit(results, "damaged", "latent", lambda row: row.pop("prior_survival"), coordinate=192)
    with pytest.raises(InputError, match=r"damaged: row 192 of its latent table has no number for prior_survival"):
        read_results(results)


@pytest.mark.parametrize(
    ("damage", "where", "message"),
    [
        (lambda row: row.pop("step"), {"step": 50}, "row 1 of its metric table has no number for step"),
        (lambda row: row.update(step="fifty"), {"step": 50}, "row 1 of its metric table has no number for step"),
        (lambda row: row.update({"q/16": None}), {}, "metrics lack q of some capacities"),
        (lambda row: row.update({"q/17": row.pop("q/16", None)}), {}, "metrics lack q of some capacities"),
        (lambda row: row.pop("q/16"), {"step": 100, "kind": "train"}, "metrics lack q of some capacities"),
    ],
)
def test_damaged_metrics_are_refused(published, damage, where, message):
    results = published("damaged")
    edit(results, "damaged", "metric", damage, **where)
    with pytest.raises(InputError, match=f"damaged: {message}"):
        page_of(results)


def test_a_run_without_metrics_is_refused(published):
    results = published("damaged")
    replace_table(results, "damaged", "metric", [])
    with pytest.raises(InputError, match="damaged: metrics lack q of some capacities"):
        page_of(results)


def test_what_q_and_prediction_did_on_the_way_is_in_a_table(published):
    """The prior of two capacities and α 1 is 2/3 and 1/3; q goes to the larger one and half of the way back."""
    config = {"model.capacities": [8, 192], "model.prior_degree": 1.0}
    for seed, top in ((3072, 50), (3073, 100)):
        results = published(f"run-{seed}", config={**config, "training.seed": seed})
        steps = [(50, 1.0 if top == 50 else 0.5, 0.1), (100, 1.0, 0.9), (150, 0.6, 0.5), (200, 0.5, 0.4)]
        rows = [{"step": s, "kind": "train", "prediction": loss, "q/8": 1 - q, "q/192": q} for s, q, loss in steps]
        replace_table(results, f"run-{seed}", "metric", rows)
    seen = "| 3072, 3073 | 0.67 ± 0.00 | 50, 100 | 0.17 ± 0.00 | 200, 200 |"
    assert f"| ALeWM | 192 | 0.3 | 3 | 1 {seen}" in page_of(results)
    for seed in (3072, 3073):
        change(results, f"run-{seed}", "run", {"config.objective.freezes_selector": True})
    frozen = "| ALeWM, q frozen at the prior | 192 | 0.3 | 3 | 1 | 3072, 3073 | – | – | – | 200, 200 |"
    assert frozen in page_of(results)
