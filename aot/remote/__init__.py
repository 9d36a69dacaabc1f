"""Compilation of variants on other machines: jobs are data, a Dask scheduler distributes them.

In the build's process, one thread does all of it. Each module keeps the state in its row:

============ ======================================================================================
module       state
============ ======================================================================================
`executor`   none: hands each variant of the build to the thread, and returns the future of its result
`loop`       the thread; the variants that the build handed in; connecting, and connecting again
`session`    the connection in use, which `loop` opens and replaces; the tasks that end with it; the build's facts, of `build_facts`
`roster`     the scheduler's workers: which a build can use, which keep silent, how many threads they have
`jobs`       the variants without a result; the jobs that workers have; the processes for variants that cannot travel
`batches`    the variants that wait for a job, and means of compile times, which give the length of a job
`connection` Dask's client and its futures, by the name of the job
`ends`       the futures of Dask that have not ended
`results`    the workers that the build reaches past the scheduler, and the worker that collects for each group
============ ======================================================================================

A variant goes ``executor.submit_job`` -> ``loop.put`` -> ``jobs.take`` -> ``batches.put``; then ``jobs.send`` takes a job from `batches` and calls
``connection.run``, which waits with `ends` and takes the answer with `results`; then `jobs` sets the futures.

A worker runs `worker`, the functions that a build calls, and `workshop`, the processes that compile. Both sides use `messages` and `version`.
"""
