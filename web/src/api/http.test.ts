import { describe, expect, it } from "vitest";

import { csrfWord, refusalOf } from "./http";

describe("a refusal", () => {
  it("is told in the server's words, whichever of its three ways it speaks", () => {
    expect(refusalOf(409, '{"kind":"Status","message":"it is there already","reason":"AlreadyExists"}')).toMatchObject({ message: "it is there already", reason: "AlreadyExists" });
    expect(refusalOf(422, '{"type":"error","status":422,"code":"InvalidBodyContent","message":"no name"}')).toMatchObject({ message: "no name", reason: "InvalidBodyContent" });
    expect(refusalOf(400, "VM is not running\n").message).toBe("VM is not running");
  });

  it("is a sentence even when the server says nothing", () => {
    expect(refusalOf(502, "").message).toContain("502");
    expect(refusalOf(500, "x".repeat(5000)).message).toContain("500");
  });
});

it("the word against forged requests is read from its cookie alone", () => {
  expect(csrfWord("a=b; CSRF=0123; XCSRF=9")).toBe("0123");
  expect(csrfWord("")).toBe("");
});
