// Unpack what pack.py has packed: exact numbers, deflated, in base64.

/** Return the bytes of a packed text. */
export async function unpack(text) {
  const packed = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(text)
    : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const TYPES = { f8: Float64Array, f4: Float32Array, i8: BigInt64Array };

/**
 * Return the columns of a table by name. `values` holds the values of each device together;
 * `at(row, device)` is one of them.
 */
export async function columns(described, rows, text) {
  const bytes = await unpack(text);
  let offset = 0;
  const readValues = (Typed, count) => {
    const values = new Typed(count);
    const raw = new Uint8Array(values.buffer);
    const size = Typed.BYTES_PER_ELEMENT;
    for (let b = 0; b < size; b++)
      for (let i = 0; i < count; i++) raw[i * size + b] = bytes[offset++];
    return values;
  };
  const table = new Map();
  for (const { name, type, devices, listed } of described) {
    const count = rows * (devices || 1);
    let values = readValues(TYPES[type], listed ?? count);
    if (listed != null) {
      const distinct = values;
      values = new TYPES[type](count);
      readValues(Uint16Array, count).forEach((index, i) => (values[i] = distinct[index]));
    }
    table.set(name, {
      name,
      devices,
      values,
      at: (row, device = 0) => values[device * rows + row],
    });
  }
  return table;
}

/** Format a number so that it is read back to the last bit. */
function exact(value) {
  if (typeof value === "bigint") return String(value);
  if (Number.isFinite(value)) return Object.is(value, -0) ? "-0.0" : String(value);
  return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Yield the lines of a CSV file. `constants` are columns with the same text in every row. */
export function* csvLines(table, rows, constants = {}, withHeading = true) {
  const all = [...table.values()];
  const names = all.flatMap(({ name, devices }) =>
    devices ? Array.from({ length: devices }, (_, d) => `${name}_${d}`) : [name],
  );
  if (withHeading) yield [...Object.keys(constants), ...names].map(quoted).join(",") + "\r\n";
  const fixed = Object.values(constants).map((text) => quoted(String(text)));
  for (let row = 0; row < rows; row++) {
    const cells = all.flatMap((c) =>
      Array.from({ length: c.devices || 1 }, (_, d) => exact(c.at(row, d))),
    );
    yield [...fixed, ...cells].join(",") + "\r\n";
  }
}
