// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict'
// Inside a cell of Pando: reports when this program is ready to be cloned.

const crypto = require('crypto')
const fs = require('fs')

function given (what) {
  return fs.readFileSync('/proc/pando/' + what, 'utf8').split('\0').slice(0, -1)
}

// Reports that this program is ready to be cloned. If a template is being created, the cell freezes here, and every clone continues here,
// with its own `process.argv` from the third on and variables of `process.env`. Returns the clone's number, or null if nothing was cloned:
// no template is being created, or this is no cell.
//
// Random numbers are distinct: `crypto`, with its keys and TLS, and `Math.random` are reseeded in each clone. Saved references to the old
// `Math.random`, and the realms of `vm`, continue with the template's state.
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
    drawAnew(device)
    return number
  } catch (error) {
    if (error.code === 'EAGAIN') return null
    throw error
  } finally {
    fs.closeSync(device)
  }
}

// OpenSSL reseeds its generators when the process ID changes: so this process pretends to be a child while it draws. Node buffers 128 UUIDs
// and 1024 integers.
function drawAnew (device) {
  fs.writeSync(device, 'child')
  crypto.randomBytes(1)
  fs.writeSync(device, 'parent')
  for (let drawn = 0; drawn < 128; drawn++) crypto.randomUUID()
  for (let drawn = 0; drawn < 1024; drawn++) crypto.randomInt(2)
  Math.random = uniform()
}

// Numbers from 0 to 1, of 53 bits each.
function uniform () {
  let store = new Uint32Array()
  let left = 0
  return function random () {
    if (left === 0) {
      store = new Uint32Array(exports.randomBytes(4096).buffer)
      left = store.length
    }
    const high = store[--left] >>> 5
    const low = store[--left] >>> 6
    return (high * 2 ** 26 + low) / 2 ** 53
  }
}

// Random bytes that are distinct in each clone.
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
