import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

import vue from "@vitejs/plugin-vue";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** Text is kept compressed beside itself: the server hands files out and compresses nothing. */
function compressed(): Plugin {
  const text = [".html", ".js", ".css", ".svg", ".json"];
  let directory = "";
  return {
    name: "compressed",
    apply: "build",
    configResolved: (config) => void (directory = join(config.root, config.build.outDir)),
    closeBundle() {
      for (const name of readdirSync(directory, { recursive: true, encoding: "utf8" })) {
        if (!text.includes(extname(name))) continue;
        const path = join(directory, name);
        const bytes = readFileSync(path);
        const best = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, best));
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  base: "/dashboard/",
  plugins: [vue(), compressed()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    target: "es2022",
    // A file inside a page is an inline script to a strict policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: Object.fromEntries(["/v1", "/v3", "/v3-public", "/api", "/apis", "/version"].map((path) => [path, server()])) },
  test: { environment: "happy-dom", include: ["src/**/*.test.ts"] },
});

/** For `npm run dev`: a server that runs already, `SHEAF_SERVER=https://host:6443`. */
function server() {
  return { target: process.env.SHEAF_SERVER ?? "https://127.0.0.1:6443", secure: false, ws: true };
}
