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
// `crypto` mixes in fresh numbers at its next use only; `Math.random` goes on as in the template: use `crypto.randomBytes` and what is made of it.
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
    return number
  } catch (error) {
    if (error.code === 'EAGAIN') return null
    throw error
  } finally {
    fs.closeSync(device)
  }
}
