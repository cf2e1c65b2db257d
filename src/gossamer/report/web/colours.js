// The colours of values, from low to high: matplotlib's viridis. No DOM.

const VIRIDIS = [
  "440154",
  "482878",
  "3e4989",
  "31688e",
  "26828e",
  "1f9e89",
  "35b779",
  "6ece58",
  "b5de2b",
  "fde725",
].map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));

function channels(share) {
  const position = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const k = Math.min(Math.floor(position), VIRIDIS.length - 2);
  return VIRIDIS[k].map((v, i) => Math.round(v + (position - k) * (VIRIDIS[k + 1][i] - v)));
}

/** Return the colour of a share from 0 to 1. */
export const viridis = (share) => `rgb(${channels(share).join(" ")})`;

/** Return the text colour, black or white, with the larger contrast to the colour of a share. */
export function inkOn(share) {
  const [r, g, b] = channels(share).map((v) => {
    const part = v / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff"; // as WCAG computes it
}

/** The shares at which the colour scale has a colour of its own. */
export const VIRIDIS_STOPS = VIRIDIS.map((_, k) => k / (VIRIDIS.length - 1));
