"""Shape annotations are enforced while testing, and no test depends on how fast the machine is."""

from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("alewm", "beartype.beartype")
settings.register_profile("alewm", deadline=None)
settings.load_profile("alewm")
