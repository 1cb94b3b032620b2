"""The Python interface: load a model and use it (`loaded`), and the verbs as functions (`verbs`)."""
