"""The speech engine: streams and files through one loop."""
