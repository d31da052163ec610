"""How a component of the page gets its script."""

from __future__ import annotations


def mount_script(function: str, module: str = "studio", event: str = "") -> str:
    """js_on_load that hands the component's inner element to a function of assets/web/MODULE.js.

    event: of the component; the function gets a second argument, which hands what it is given to its listeners.
    """
    at = f"new URL('web/{module}.js', new URL(window.gradio_config.root + '/', location.href))"
    root = "element.querySelector('[data-state]')"
    trigger = f", (given) => trigger('{event}', given)" if event else ""
    return f"(async () => {{ const page = await import({at}); await page.{function}({root}{trigger}); }})()"
