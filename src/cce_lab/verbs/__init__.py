"""The lab's verbs of the command line, one module each; entry points of the group `clustered_embeddings.verbs`."""
