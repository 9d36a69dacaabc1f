"""Rules as the documentation says them, slow and plain: tests hold the engine to these."""
