// Browsers run no workers for a page that was opened from a folder (file:). The search of the theme
// runs in a frame there: a window of its own, in which messages come and go as they do in a worker.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.ready = new Promise((ready) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        frame.onload = () => ready(frame.contentWindow);
        frame.srcdoc = `<script>postMessage = (data) => frameElement.answer(data)</script><script src="${url}"></script>`;
        document.body.append(frame);
        this.frame = frame;
      });
    }
    postMessage(data) {
      this.ready.then((window) => window.dispatchEvent(new window.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
