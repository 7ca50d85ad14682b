// Pictures and files that a log holds: the service gives them out by the record that tells of them (docs/http.md). Pictures of the
// kinds in which nothing runs are shown, up to a size that a page can bear; everything else can be saved, and is never opened here.

import { h } from "./dom.js";
import { full, plain, size } from "./words.js";

const SHOWN = 8 * 2 ** 20;
const DIGEST = /^[0-9a-f]{64}$/;

let feed = null;

/** The log whose blobs are shown from now on; null for none. */
export function lookIn(shown) {
  feed = shown;
}

/** The blobs that a record tells of, by their digests. */
export function* blobsIn(record) {
  const left = [record.message?.content, record.content];
  while (left.length) {
    const part = left.pop();
    if (!Array.isArray(part)) continue;
    for (const block of part) {
      if (block?.blob) yield block.blob;
      if (block?.content) left.push(block.content);
    }
  }
}

/** The blob of a block, once the service has said how large it is and whether it may be shown. */
export function held(block) {
  const element = h("span", {}, h("code", {}, `blob ${plain(String(block.blob).slice(0, 16))}…`)),
    seq = feed?.blobs.get(block.blob);
  if (seq !== undefined && DIGEST.test(block.blob)) draw(element, block, addressOf(feed.id, seq, block.blob));
  return element;
}

const addressOf = (agent, seq, digest) => `/blobs/${digest}?agent=${encodeURIComponent(agent)}&seq=${seq}`;

async function draw(element, block, address) {
  const said = (text) => element.replaceChildren(h("span.hint", {}, text));
  let found;
  try {
    found = await fetch(address, { method: "HEAD" });
  } catch {
    return said("The service is away: choose it again later.");
  }
  if (!found.ok)
    return said(found.status === 404 ? "The store does not have it." : `The service does not give it (${found.status}).`);
  const bytes = Number(found.headers.get("content-length")),
    picture = found.headers.get("content-type").startsWith("image/"),
    save = h("a", { href: address, download: plain(block.name ?? block.blob.slice(0, 16)) }, `Save, ${size(bytes)}`);
  element.replaceChildren(save);
  if (picture && bytes > SHOWN) element.append(h("span.hint", {}, ` too large to be shown: more than ${size(SHOWN)}`));
  else if (picture) element.append(shown(block, address, full(bytes)));
}

function shown(block, address, bytes) {
  const name = plain(block.name ?? "Picture"),
    link = h("a.picture", { href: address, target: "_blank", rel: "noopener noreferrer", title: `${name}, ${bytes} bytes` });
  const gone = () => link.replaceWith(h("span.hint", {}, " This browser cannot show it."));
  link.append(h("img", { src: address, alt: name, decoding: "async", onerror: gone }));
  return link;
}
