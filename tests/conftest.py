"""Shape annotations are enforced while testing."""

from jaxtyping import install_import_hook

install_import_hook("alewm", "beartype.beartype")
