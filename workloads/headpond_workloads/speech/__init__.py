"""Speech recognition: files, and streams while they are spoken."""
