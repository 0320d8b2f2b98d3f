"""The results of the papers' studies in the repository, and the pages that are made from them."""
