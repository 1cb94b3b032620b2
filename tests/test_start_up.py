"""`import alewm` and `alewm --help` are light: what is heavy loads when it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import alewm

HEAVY = ("torch", "numpy", "h5py", "matplotlib", "gymnasium")


def loaded_after(code: str) -> list[str]:
    probe = f"import sys\n{code}\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return eval(done.stdout.strip().splitlines()[-1])


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_after("import alewm") == []


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nsys.argv = ['alewm', '--help']\nfrom alewm.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    assert loaded_after(code) == []


def test_type_checkers_find_public_names_where_they_load_from():
    tree = ast.parse(Path(alewm.__file__).read_text())
    (seen,) = (node for node in tree.body if isinstance(node, ast.If))
    found = {alias.name: line.module for line in seen.body for alias in line.names}
    assert found == alewm._HOME_OF
    assert {*found, "__version__"} == set(dir(alewm))


def test_help_is_a_page_that_names_every_public_object():
    done = subprocess.run(
        [sys.executable, "-c", "import alewm; help(alewm)"], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) < 120
    assert all(name in done.stdout for name in alewm._HOME_OF)


def test_public_names_load_on_first_use_and_unknown_ones_are_refused():
    code = (
        "import alewm\n"
        "assert alewm.SIGReg.__name__ == 'SIGReg'\n"
        "for name in dir(alewm): getattr(alewm, name)\n"
        "try:\n    alewm.SigReg\nexcept AttributeError as error:\n    assert 'SIGReg' in str(error)\n"
        "else:\n    raise SystemExit('unknown name accepted')"
    )
    assert "torch" in loaded_after(code)
