"""How the tiny checkpoint is trained."""
