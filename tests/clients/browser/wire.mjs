import net from "node:net";

/** A wire between the browser and the server that can be cut, and made slow for what the browser sends. */
export async function wire(url) {
  const { hostname, port } = new URL(url);
  const open = new Set();
  let isCut = false;
  let rate = Infinity;
  const server = net.createServer((near) => {
    if (isCut) return near.destroy();
    const far = net.connect(Number(port), hostname);
    for (const end of [near, far]) {
      open.add(end);
      end.on("error", () => {});
      end.on("close", () => {
        open.delete(end);
        near.destroy();
        far.destroy();
      });
    }
    near.on("data", (piece) => {
      far.write(piece);
      if (rate === Infinity) return;
      near.pause();
      setTimeout(() => near.resume(), (piece.length / rate) * 1000);
    });
    near.on("end", () => far.end());
    far.pipe(near);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `https://127.0.0.1:${server.address().port}`,
    cut() {
      isCut = true;
      for (const end of open) end.destroy();
    },
    mend() {
      isCut = false;
    },
    /** Bytes in a second; Infinity for as fast as it goes. */
    slow(bytes) {
      rate = bytes;
    },
  };
}
