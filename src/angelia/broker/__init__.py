"""The broker process: links, sessions, and what it can be told."""
