"""Sound as numbers and as files: reading clips, judging them, resampling, writing formats. No torch."""
