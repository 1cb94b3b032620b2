"""Records of finished runs, and the pages made from them."""
