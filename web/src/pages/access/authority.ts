// The certificate of the authority that signs this server's own, as every namespace shows it.

import { get } from "@/api/http";

const NAME = "kube-root-ca.crt";

interface Found {
  data: { data?: Record<string, string> }[] | null;
}

/** Nothing for who sees no namespace. */
export async function authority(): Promise<string | undefined> {
  const found = await get<Found>(`/v1/configmap?fieldSelector=metadata.name=${NAME}&limit=1`);
  return found.data?.[0]?.data?.["ca.crt"];
}

/** What is between the lines of a PEM file; the first certificate, if there are several. */
export function derOf(pem: string): Uint8Array<ArrayBuffer> | undefined {
  const inside = /-----BEGIN CERTIFICATE-----([\s\S]+?)-----END CERTIFICATE-----/.exec(pem)?.[1];
  return inside === undefined ? undefined : Uint8Array.from(atob(inside.replace(/\s+/g, "")), (letter) => letter.charCodeAt(0));
}

/** As openssl writes it. */
export async function fingerprint(pem: string): Promise<string> {
  const der = derOf(pem);
  if (der === undefined) return "";
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", der));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0").toUpperCase()).join(":");
}
