"""Numbers as people write them."""


def scientific(value: float) -> str:
    """A small number by its power of ten: 5e-5 and 2e-4, whichever of the two `format` would write as a decimal."""
    digits, _, exponent = f"{value:.5e}".partition("e")
    return f"{float(digits):g}e{int(exponent)}"
