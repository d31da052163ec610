"""The page: Gradio Blocks, one file a tab. Sound does not pass through Gradio events; see assets/web/player.js."""
