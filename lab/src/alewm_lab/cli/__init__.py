"""`alewm-lab`: one verb per file."""
