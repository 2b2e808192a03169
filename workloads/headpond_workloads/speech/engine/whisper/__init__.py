"""Whisper: an offline model, made to stream by hearing each utterance again as it grows."""
