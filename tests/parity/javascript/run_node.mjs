// Read {folder, jobs} as JSON from standard input, and write the results to standard output.
import { readFileSync } from "node:fs";
import * as transformers from "@huggingface/transformers";
import { runJobs } from "./pipelines.mjs";

const { folder, jobs } = JSON.parse(readFileSync(0, "utf-8"));
const results = await runJobs(transformers, folder, jobs);
process.stdout.write(JSON.stringify(results));
