"""What a page in a browser loads, reports and looks like."""

from contextlib import contextmanager

VISIBLE_TEXTS_WITH_LOW_CONTRAST = """
() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].map((value) => value / 255);
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, n) => value * a + below[n] * (1 - a));
  const background = (node) => {
    const below = node.parentElement ? background(node.parentElement) : [1, 1, 1];
    return over(rgba(getComputedStyle(node).backgroundColor), below);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const [low, seen] = [[], new Set()];
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || seen.has(node) || !node.checkVisibility()) continue;
    seen.add(node);
    const paper = background(node);
    const ink = over(rgba(getComputedStyle(node).color), paper);
    const [high, less] = [luminance(ink), luminance(paper)].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (less + 0.05);
    if (contrast < 4.5) low.push(`${node.outerHTML.slice(0, 80)}: ${contrast.toFixed(2)}`);
  }
  return [seen.size, low];
}
"""


def require_contrast(page) -> None:
    """Require a contrast of at least 4.5 to 1 for all visible texts (WCAG 2.2, 1.4.3 AA)."""
    num_texts, low = page.evaluate(VISIBLE_TEXTS_WITH_LOW_CONTRAST)
    assert num_texts > 5
    assert not low


@contextmanager
def quiet_page(browser, origin: str, failing_status: str = "", **options):
    """Open a page that may load files of one origin only, and report nothing on the console.

    Responses with ``failing_status`` may be reported, and nothing else.
    """
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **options)
    page = context.new_page()
    urls, messages = [], []
    page.on("request", lambda request: urls.append(request.url))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("console", lambda message: messages.append(message.text))
    yield page
    context.close()
    assert urls
    assert all(url.startswith((origin, "data:", "about:srcdoc")) for url in urls), urls
    assert all(failing_status and f"status of {failing_status}" in text for text in messages), (
        messages
    )
