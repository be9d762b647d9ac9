"""The KV cache: one page pool and one hash table for all four modalities (DESIGN 5)."""
