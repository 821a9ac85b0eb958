
// Help while pointing: `describe` returns the lines to show for a pointer event, or nothing.
function hover(node, describe) {
  const tip = byId("tip");
  node.addEventListener("pointermove", (event) => {
    const lines = describe(event);
    tip.hidden = !lines;
    if (!lines) return;
    tip.textContent = lines.join("\n");
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 8 : event.clientY + 18}px`;
  });
  for (const name of ["pointerleave", "pointerdown"]) node.addEventListener(name, () => { tip.hidden = true; });
}

// The column and row of a picture at which the pointer is.
function pixelAt(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const at = (offset, size, number) => Math.min(number - 1, Math.max(0, Math.floor((offset / size) * number)));
  return [at(event.clientX - box.left, box.width, canvas.width), at(event.clientY - box.top, box.height, canvas.height)];
}

const exact = (value) => value.toFixed(6);
