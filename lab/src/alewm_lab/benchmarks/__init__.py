"""What `alewm-lab bench` measures."""
