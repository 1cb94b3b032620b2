"""Does a model reach goals it has never seen, how sure are we, and how much of its latent did it use?"""
