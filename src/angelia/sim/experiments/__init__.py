"""The papers' studies, repeated with our nodes."""
