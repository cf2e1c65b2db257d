// Browsers start no workers on file://. There, the search runs in a hidden frame instead, so that
// it works from a folder.
if (location.protocol === "file:") {
  const SETUP = 0 // the type of the message that brings the index

  const load = (inside, url) =>
    new Promise((resolve, reject) => {
      const script = inside.document.createElement("script")
      script.src = url
      script.onload = resolve
      script.onerror = reject
      inside.document.body.appendChild(script)
    })

  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.title = "search"
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><html lang='en'><title>search</title><body></body>")
      inside.document.close()
      this.answered = new Promise(resolve => {
        inside.postMessage = data => {
          resolve()
          // Later, as from a worker.
          setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })))
        }
      })
      inside.importScripts = async (...urls) => {
        for (const one of urls) await load(inside, one)
      }
      this.loaded = load(inside, url)
    }

    // A query that comes before the index is loaded waits for it.
    postMessage(data) {
      const inside = this.frame.contentWindow
      const ready = data.type === SETUP ? this.loaded : this.answered
      ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
