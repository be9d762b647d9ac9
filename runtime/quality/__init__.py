"""Questions with a right answer, and how well a checkpoint answers them."""
