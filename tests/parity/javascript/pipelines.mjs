// Run pipelines of transformers.js on local folders; the same in node and in a browser.

/** Return the results of jobs {name, task, dtype, inputs, options, raw} by name. */
export async function runJobs({ pipeline, env }, localModelPath, jobs, device) {
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = localModelPath;
  env.useBrowserCache = false;
  const results = {};
  for (const job of jobs) {
    const settings = { dtype: job.dtype, ...(device && { device }) };
    const pipe = await pipeline(job.task, job.model, settings);
    results[job.name] = job.raw ? await runModel(pipe, job) : await pipe(...job.inputs, job.options);
    if (results[job.name].tolist) results[job.name] = results[job.name].tolist();
    await pipe.dispose();
  }
  return results;
}

/** Return the token ids and the outputs of the graph for a batch. */
async function runModel({ tokenizer, model }, { inputs: [texts], options }) {
  const inputs = tokenizer(texts, { padding: true, truncation: true, ...options });
  const outputs = await model(inputs);
  const lists = Object.entries(outputs).map(([name, tensor]) => [name, tensor.tolist()]);
  const tokenIds = inputs.input_ids.tolist().map((ids) => ids.map(Number));
  return { input_ids: tokenIds, ...Object.fromEntries(lists) };
}
