"""`hrl` and `placeto`: what they learn with, and what they are worth beside other searches."""
