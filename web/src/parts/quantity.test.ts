import { describe, expect, it } from "vitest";

import { age, bytes, duration, quantity } from "./quantity";

describe("quantities", () => {
  it("are read as Kubernetes writes them", () => {
    expect(quantity("2Gi")).toBe(2 * 2 ** 30);
    expect(quantity("1500m")).toBe(1.5);
    expect(quantity("1e3")).toBe(1000);
    expect(quantity("5M")).toBe(5e6);
    expect(quantity(7)).toBe(7);
    for (const none of ["", "Gi", "1 Gi", "1Xi", undefined, null]) expect(quantity(none)).toBeUndefined();
  });

  it("are written in the unit that people would take", () => {
    expect(bytes(0)).toBe("0 B");
    expect(bytes(1023)).toBe("1023 B");
    expect(bytes(1024)).toBe("1 KiB");
    expect(bytes(1536)).toBe("1.5 KiB");
    expect(bytes(1024 ** 2 - 1)).toBe("1 MiB");
    expect(bytes(150 * 2 ** 30)).toBe("150 GiB");
    expect(bytes(undefined)).toBe("–");
  });

  it("tell how long ago something was", () => {
    const now = Date.parse("2026-01-02T00:00:00Z");
    expect(age("2026-01-01T23:59:00Z", now)).toBe("60s");
    expect(age("2026-01-01T20:00:00Z", now)).toBe("4h");
    expect(age("2026-01-02T00:00:05Z", now)).toBe("0s");
    expect(age(undefined, now)).toBe("–");
    expect(duration(3 * 86_400)).toBe("3d");
  });
});
