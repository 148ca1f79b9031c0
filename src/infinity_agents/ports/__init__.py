"""The roles that the runtime needs filled. Adapters fill them, one technology each; wirings choose."""
