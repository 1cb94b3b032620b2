"""Other people's files, interfaces and habits: LeWM weights, stable-worldmodel, the Hugging Face Hub."""
