"use strict";

// A request as a command for a shell, and as a Python program without dependencies.
const KEY_VARIABLE = "BERTWRIGHT_API_KEY";

const shellQuoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curlSnippet({ url, body, needsKey, output }) {
  const options = ["-H 'Content-Type: application/json'",
    ...(needsKey ? [`-H "Authorization: Bearer $${KEY_VARIABLE}"`] : []),
    `-d ${shellQuoted(JSON.stringify(body))}`, ...(output ? [`-o ${output}`] : [])];
  return [`curl ${url}`, ...options].join(" \\\n    ");
}

// JSON as a Python literal; strings are the same in both.
function pythonLiteral(value) {
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (value !== null && typeof value === "object")
    return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonLiteral(one)}`).join(", ")}}`;
  if (typeof value === "boolean") return value ? "True" : "False";
  return JSON.stringify(value);
}

function pythonSnippet({ url, body, needsKey, output }) {
  const headers = ['"Content-Type": "application/json"',
    ...(needsKey ? [`"Authorization": "Bearer " + os.environ["${KEY_VARIABLE}"]`] : [])];
  return [
    "import json", ...(needsKey ? ["import os"] : []), "import urllib.request", "",
    `body = ${pythonLiteral(body)}`,
    "request = urllib.request.Request(",
    `    ${JSON.stringify(url)},`,
    "    data=json.dumps(body).encode(),",
    `    headers={${headers.join(", ")}},`,
    ")",
    "with urllib.request.urlopen(request) as response:",
    ...(output ? [`    content = response.read()`, `with open("${output}", "wb") as file:`, "    file.write(content)"]
      : ["    print(json.load(response))"]),
    "",
  ].join("\n");
}

const SNIPPETS = { curl: curlSnippet, python: pythonSnippet };

// Copies a text. Browsers offer the clipboard only to pages from this machine or over HTTPS; elsewhere
// the text is selected and copied as by a person.
async function copyText(node) {
  if (navigator.clipboard) return navigator.clipboard.writeText(node.textContent);
  getSelection().selectAllChildren(node);
  if (!document.execCommand("copy")) throw new Error("not copied");
}
