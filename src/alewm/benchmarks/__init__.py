"""What `alewm bench` measures."""
