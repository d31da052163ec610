"""Faults of access, as axe finds them on a page."""

from __future__ import annotations

from importlib import resources

from playwright.sync_api import Page

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")

# A colour half-way through a transition is no fault of the page; one that was replaced rejects its promise.
STILL = """Promise.allSettled(
    document.getAnimations().filter((one) => one instanceof CSSTransition).map((one) => one.finished))"""

RUN = """async (within) => {
    const { violations } = await axe.run(within, { resultTypes: ["violations"] });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => [id, node.target.join(" "), node.failureSummary]));
}"""


def faults(page: Page, within: str = "html") -> set[tuple[str, str, str]]:
    """Rule, selector and reason of each fault in the part of the page that the selector `within` names."""
    page.evaluate(AXE)
    page.evaluate(STILL)
    return {(rule, target, why) for rule, target, why in page.evaluate(RUN, within)}
