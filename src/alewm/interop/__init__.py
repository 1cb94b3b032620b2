"""Other people's files and interfaces: LeWM weights, stable-worldmodel, the Hugging Face Hub."""
