"""How a component of the page gets its script."""

from __future__ import annotations


def mount_script(function: str, module: str = "studio") -> str:
    """js_on_load that hands the component's inner element to a function of assets/web/MODULE.js."""
    at = f"new URL('web/{module}.js', new URL(window.gradio_config.root + '/', location.href))"
    root = "element.querySelector('[data-state]')"
    return f"(async () => {{ const page = await import({at}); await page.{function}({root}); }})()"
