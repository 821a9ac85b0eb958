"use strict";

// Shows openapi.json.
const main = document.querySelector("main");

function typeName(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" or ");
  if (schema.enum || schema.const) return (schema.enum ?? [schema.const]).map((value) => JSON.stringify(value)).join(" or ");
  return schema.type === "array" ? `list of ${typeName(schema.items ?? {})}` : schema.type ?? "any";
}

function fields(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const value = property.default === undefined ? "" : JSON.stringify(property.default);
    return [element("code", {}, name), typeName(property), (schema.required ?? []).includes(name) ? "required" : value];
  });
  return [element("p", {}, (schema.description ?? "").replaceAll("``", "")), table("Fields", ["field", "type", "default"], rows)];
}

function bodySchemas(content, schemas) {
  return Object.values(content ?? {}).map(({schema}) => schema ? schemas[typeName(schema)] : null).filter(Boolean);
}

function endpoint(path, method, operation, schemas) {
  const responses = Object.entries(operation.responses).map(([status, response]) => {
    const types = Object.values(response.content ?? {}).map(({schema}) => schema ? typeName(schema) : "");
    return [element("code", {}, status), response.description, types.join(", ")];
  });
  return element("section", {}, element("h2", {}, element("code", {}, `${method.toUpperCase()} ${path}`)),
    element("p", {}, operation.description ?? ""),
    ...bodySchemas(operation.requestBody?.content, schemas).flatMap(fields),
    table("Responses", ["status", "description", "body"], responses));
}

fetch("openapi.json").then((response) => response.json()).then(({paths, components: {schemas}}) => {
  const endpoints = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => endpoint(path, method, operation, schemas)));
  const bodies = Object.entries(schemas).map(([name, schema]) =>
    element("section", {}, element("h2", {}, element("code", {}, name)), ...fields(schema)));
  main.replaceChildren(...endpoints, element("h1", {}, "Bodies"), ...bodies);
}).catch(() => { main.textContent = "The server cannot be reached."; });
