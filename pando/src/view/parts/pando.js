// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict'
// Inside a cell of Pando: says when this program is ready to be cloned.

const fs = require('fs')

function given (what) {
  return fs.readFileSync('/proc/pando/' + what, 'utf8').split('\0').slice(0, -1)
}

// Says that this program is ready to be cloned. Where a template is wanted, the cell freezes here, and every clone goes on from here, with `process.argv` from its third on and variables of
// `process.env` of its own. Returns the clone's number; null where nothing was cloned: no template was wanted, or this is no cell.
//
// Node has no way to seed its own generators anew: in every clone `Math.random` and all of `crypto` go on where the template's stood, so that clones draw THE SAME numbers, identifiers and keys. What
// must be secret or different is to be drawn from `exports.randomBytes`, or in a process that is started afterwards.
exports.ready = function ready () {
  let device
  try {
    device = fs.openSync('/dev/pando', fs.constants.O_RDWR | fs.constants.O_NONBLOCK)
  } catch {
    return null
  }
  try {
    fs.writeSync(device, 'ready')
    const room = Buffer.alloc(64)
    const number = Number(room.toString('latin1', 0, fs.readSync(device, room)).split(' ')[1])
    process.argv.splice(2, process.argv.length, ...given('arguments'))
    for (const variable of given('environment')) {
      const equals = variable.indexOf('=')
      process.env[variable.slice(0, equals)] = variable.slice(equals + 1)
    }
    process.emitWarning('Math.random and crypto draw the same numbers and keys in every clone: use pando.randomBytes', 'PandoWarning')
    return number
  } catch (error) {
    if (error.code === 'EAGAIN') return null
    throw error
  } finally {
    fs.closeSync(device)
  }
}

// Bytes that no other clone draws.
exports.randomBytes = function randomBytes (length) {
  const source = fs.openSync('/dev/urandom', 'r')
  try {
    const bytes = Buffer.alloc(length)
    let done = 0
    while (done < length) done += fs.readSync(source, bytes, done, length - done)
    return bytes
  } finally {
    fs.closeSync(source)
  }
}
