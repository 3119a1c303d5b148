// An answer that a page asks for when it needs it.

/**
 * @template T
 */
export class Query {
  /** @param {() => void} repaint */
  constructor(repaint) {
    this.repaint = repaint;
    this.subject = "";
    this.key = "";
    /** @type {T | undefined} */
    this.value = undefined;
    /** @type {unknown} */
    this.error = undefined;
    this.busy = false;
  }

  /**
   * The answer for a subject. It is asked for again when `key` changes; until then the old answer about the same
   * subject stays.
   * @param {string} subject @param {string} key @param {() => Promise<T>} ask
   */
  about(subject, key, ask) {
    const wanted = `${subject}\n${key}`;
    if (wanted === this.key) return this;
    if (subject !== this.subject) {
      this.value = undefined;
      this.error = undefined;
    }
    this.subject = subject;
    this.key = wanted;
    void this.run(wanted, ask);
    return this;
  }

  /** @param {string} wanted @param {() => Promise<T>} ask */
  async run(wanted, ask) {
    this.busy = true;
    try {
      const value = await ask();
      if (this.key !== wanted) return;
      this.value = value;
      this.error = undefined;
    } catch (error) {
      if (this.key !== wanted) return;
      this.error = error;
    }
    this.busy = false;
    this.repaint();
  }

  /** Ask again at the next paint. */
  forget() {
    this.key = "";
    this.repaint();
  }
}
