"""The front end: from bytes as they come to samples, and to where speech begins and ends."""
