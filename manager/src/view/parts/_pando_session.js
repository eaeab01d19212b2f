// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict'
// A context of JavaScript: evaluates code as Node's REPL does, so that variables stay and `await` is allowed outside of functions.
//
// The arguments are two descriptors: one to read code from, a line of JSON each, and one for the results, the same.

const fs = require('fs')
const readline = require('readline')
const repl = require('repl')
const util = require('util')
const { PassThrough } = require('stream')
// The code may replace it.
const stringify = JSON.stringify

const nowhere = new PassThrough()
nowhere.resume()
const evaluator = repl.start({
  prompt: '',
  input: new PassThrough(),
  output: nowhere,
  terminal: false,
  useGlobal: true,
  breakEvalOnSigint: true
})

// The function that reports the end of the code that runs.
let end = null

// Errors that the evaluator throws, and those of callbacks, come here.
evaluator._domain.removeAllListeners('error')
evaluator._domain.on('error', fail)
process.on('uncaughtException', fail)
process.on('unhandledRejection', fail)
process.on('SIGINT', interrupt)

// Interrupts code that waits.
function interrupt () {
  if (end) end(Object.assign(new Error('interrupted'), { name: 'KeyboardInterrupt', stack: 'KeyboardInterrupt: interrupted' }))
}

function fail (error) {
  if (end) return end(error)
  try {
    console.error(error)
  } catch {
    // It cannot be inspected, or the code has changed the console.
  }
}

function describe (error) {
  // The evaluator wraps syntax errors at the end of the code.
  if (error && error.err instanceof Error) error = error.err
  if (error instanceof SyntaxError) return { name: error.name, value: error.message, traceback: `${error.name}: ${error.message}\n` }
  if (error && error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') {
    return { name: 'KeyboardInterrupt', value: 'interrupted', traceback: 'KeyboardInterrupt: interrupted\n' }
  }
  if (!(error instanceof Error) && !(error && error.stack)) return { name: 'Error', value: util.inspect(error), traceback: '' }
  // Without the frames of this file and the evaluator.
  const lines = String(error.stack).split('\n')
  const own = lines.findIndex(line => /node:vm|node:repl|sigintHandlersWrap|_pando_session/.test(line))
  return { name: String(error.name), value: String(error.message), traceback: (own < 0 ? lines : lines.slice(0, own)).join('\n') + '\n' }
}

function formats (value) {
  if (value === undefined) return null
  const data = { 'text/plain': util.inspect(value) }
  if (value !== null && typeof value === 'object' && [Object.prototype, Array.prototype].includes(Object.getPrototypeOf(value))) {
    try {
      data['application/json'] = JSON.parse(stringify(value))
    } catch {
      // It has a circle, or a value that JSON has not.
    }
  }
  return data
}

// The result of code. Its values may throw while they are inspected.
function outcome (error, value) {
  try {
    return error !== undefined && error !== null ? { error: describe(error) } : { error: null, data: formats(value) }
  } catch (thrown) {
    try {
      return { error: describe(thrown) }
    } catch {
      return { error: { name: 'Error', value: 'the value cannot be inspected', traceback: '' } }
    }
  }
}

function run (code) {
  return new Promise(resolve => {
    end = (error, value) => {
      end = null
      resolve(outcome(error, value))
    }
    const mine = end
    // The evaluator has a handler of its own while it calculates, which works only if there is no other.
    process.removeListener('SIGINT', interrupt)
    try {
      evaluator.eval(code + '\n', evaluator.context, '<code>', (error, value) => { if (end === mine) mine(error, value) })
    } catch (error) {
      if (end === mine) mine(error)
    } finally {
      process.on('SIGINT', interrupt)
    }
  })
}

async function main () {
  const results = Number(process.argv[3])
  const lines = readline.createInterface({ input: fs.createReadStream(null, { fd: Number(process.argv[2]) }) })
  process.argv.splice(1)
  for await (const line of lines) {
    const result = await run(JSON.parse(line))
    try {
      if (result.error) console.error(result.error.traceback.trimEnd() || result.error.value)
    } catch {
      // The code has changed the console.
    }
    fs.writeSync(results, stringify(result) + '\n')
  }
  process.exit(0)
}

main()
